//! The words that the rules of prose replace, and the places in a file that have them.

use std::path::Path;

use crate::prose::texts::{self, Kind, Paragraph};

/// Words and phrases in all their forms, in lower case, and their replacements. They are refused everywhere in a text,
/// also where a line ends inside them.
pub(crate) const REPLACED: &[(&[&str], &str)] = &[
    (&["give", "gives", "gave", "given", "giving"], "return, have, ..."),
    (&["tell", "tells", "told", "telling"], "report, notify"),
    (&["hear", "hears", "heard", "hearing"], "receive"),
    (&["anew"], "again"),
    (&["but for"], "except"),
    (&["what is", "what are", "what was", "what were", "what has", "what have"], SUBJECT),
    (&["who waits", "who wait", "who waited", "who is", "who has"], SUBJECT),
    (&["nobody", "somebody", "anybody", "everybody"], "no caller, a client, every user, ..."),
    (&["for good"], "permanently"),
    (&["so many"], "this number of, a number of"),
    (&["none where", "none when"], "`None` if"),
    (&["stands in", "stand in", "stood in", "standing in"], "is in"),
    (&["alone"], "only"),
    (&["became of", "becomes of", "become of"], "the result, the state"),
    (&["cut away", "cuts away", "cutting away"], "removed, pruned"),
    (&["room", "rooms"], "module; space, except in the phrases of ALLOWED"),
    (&["door", "doors"], "module, entry point"),
];
const SUBJECT: &str = "a term of the glossary as the subject";
/// Phrases with words of [`REPLACED`] in which they have another meaning.
const ALLOWED: &[&str] =
    &["room for", "no room", "makes room", "make room", "give up", "gives up", "gave up", "given up", "giving up"];
/// Words that must not be the subject of a sentence. Questions and headings may begin with them.
pub(crate) const SUBJECTS: &[&str] = &["What", "Who"];
/// Words that must not begin a doc comment: verbs that say nothing, and fragments without a subject.
pub(crate) const BEGINNINGS: &[&str] = &[
    "What", "Who", "Take", "Takes", "Go", "Goes", "Say", "Says", "Let", "Lets", "Put", "Puts", "Ask", "Asks", "Hold",
    "Holds", "Look", "Looks", "Give", "Gives", "Tell", "Tells", "Of",
];

/// The places in one file where the rules replace something: line and word.
pub(crate) fn places(path: &Path, text: &str) -> Vec<(usize, String)> {
    let (paragraphs, unclosed) = texts::read(path, text);
    let mut found: Vec<_> = paragraphs.iter().flat_map(of_paragraph).collect();
    found.extend(unclosed.into_iter().map(|line| (line, "a code fence without an end".to_owned())));
    found.sort();
    found
}

/// Returns the text of a paragraph in one line, with `_` for text between backticks: output, or names of something
/// else.
fn joined(paragraph: &Paragraph) -> String {
    let lines: Vec<&str> = paragraph.lines.iter().map(|(_, line)| line.as_str()).collect();
    let text = lines.join(" ");
    let parts: Vec<&str> = text.split('`').collect();
    let shown = |(at, part): (usize, &&str)| {
        if at % 2 == 1 && at + 1 < parts.len() { "_".repeat(part.len()) } else { (*part).to_owned() }
    };
    parts.iter().enumerate().map(shown).collect::<Vec<_>>().join(" ")
}

fn of_paragraph(paragraph: &Paragraph) -> Vec<(usize, String)> {
    let text = joined(paragraph);
    let mut lower = text.to_ascii_lowercase();
    for phrase in ALLOWED {
        lower = lower.replace(phrase, &"_".repeat(phrase.len()));
    }
    let line = |offset: usize| {
        let mut end = 0;
        let of = paragraph.lines.iter().find(|(_, line)| {
            end += line.len() + 1;
            offset < end
        });
        of.map_or(0, |(number, _)| *number)
    };
    let mut found = Vec::new();
    for words in REPLACED.iter().flat_map(|(forms, _)| *forms) {
        let at = lower.match_indices(words).map(|(at, _)| at);
        let ends = |at: usize| {
            let rest = &lower[at + words.len()..];
            !rest.strip_prefix("'s").unwrap_or(rest).starts_with(is_of_word)
        };
        let whole = at.filter(|at| !lower[..*at].ends_with(is_of_word) && ends(*at));
        found.extend(whole.map(|at| (line(at), (*words).to_owned())));
    }
    let begins = |text: &str, word: &str| text.strip_prefix(word).is_some_and(|rest| !rest.starts_with(is_of_word));
    let is_doc = paragraph.kind == Kind::Doc;
    found.extend(
        BEGINNINGS.iter().filter(|word| is_doc && begins(&text, word)).map(|word| (line(0), format!("{word} ..."))),
    );
    for start in
        sentences(&text).into_iter().filter(|start| paragraph.kind != Kind::Heading && !(is_doc && *start == 0))
    {
        let sentence = &text[start..];
        let end = sentence.find(['.', '?', '!']).map(|at| &sentence[at..]);
        let is_question = end.is_some_and(|end| end.starts_with('?'));
        let subjects = SUBJECTS.iter().filter(|word| begins(sentence, word) && !is_question);
        found.extend(subjects.map(|word| (line(start), format!("{word} ..."))));
    }
    found
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || ['\'', '-', '_'].contains(&character)
}

/// Returns where the sentences of a text begin.
fn sentences(text: &str) -> Vec<usize> {
    let ends = [". ", "? ", "! ", ".) ", ": "];
    let mut starts = vec![0];
    starts.extend(ends.iter().flat_map(|end| text.match_indices(end).map(|(at, _)| at + end.len())));
    // Emphasis before the first word.
    starts.into_iter().map(|at| at + text[at..].len() - text[at..].trim_start_matches(['*', ' ', '(']).len()).collect()
}
