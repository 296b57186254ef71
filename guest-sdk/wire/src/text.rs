//! Bounds and escapes for text from outside, shared by the host and the SDK's test host.

use std::fmt::{self, Write};

/// The most bytes of a message.
pub const MESSAGE_BYTES: usize = 2 << 10;

/// Cuts a text to at most `limit` bytes, at the boundary of a character.
#[must_use]
pub fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Escapes characters that would forge lines, reorder text on a terminal or hide in it: control characters, line and
/// paragraph separators, the marks and overrides of bidirectional text, and characters without a shape, such as tags.
///
/// Text that leaves the host passes through this function, wherever it came from. The escapes are those of JSON, so
/// that a line of JSON with such characters has the same meaning after it. Escaping twice changes nothing.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    // A text accepts all that is written to it.
    let _ = Escaped(&mut escaped).write_str(text);
    escaped
}

/// Writes texts as [`escape`] returns them, without a text between.
#[derive(Debug)]
pub struct Escaped<W>(pub W);

impl<W: Write> Write for Escaped<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return self.0.write_str(text);
        }
        text.chars().try_for_each(|character| match character {
            '\n' => self.0.write_str("\\n"),
            '\r' => self.0.write_str("\\r"),
            '\t' => self.0.write_str("\\t"),
            _ if is_hidden(character) => {
                character.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(self.0, "\\u{unit:04x}"))
            }
            _ => self.0.write_char(character),
        })
    }
}

fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Escapes and cuts a text to at most `limit` bytes; a text that was cut ends with "...".
#[must_use]
pub fn bounded(text: &str, limit: usize) -> String {
    const MARK: &str = "...";
    // Escaping never shortens a character.
    let mut escaped = escape(cut(text, limit));
    if text.len() > limit || escaped.len() > limit {
        escaped.truncate(cut(&escaped, limit.saturating_sub(MARK.len())).len());
        escaped.push_str(cut(MARK, limit));
    }
    escaped
}

/// Returns a message as one line of at most 2 KiB.
#[must_use]
pub fn line(message: &str) -> String {
    bounded(message, MESSAGE_BYTES)
}

/// Makes a text that people read one line without hidden characters. A text of more than `limit` bytes stays as it is
/// and is refused later; one that is only longer after it was escaped is cut.
pub fn for_people(text: &mut String, limit: usize) {
    if text.len() <= limit {
        *text = bounded(text, limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_forge_or_reorder_log_lines() {
        assert_eq!(escape("a\nb\u{1b}[2J\u{202e}c é"), "a\\nb\\u001b[2J\\u202ec é");
        for hidden in ["\r", "\u{85}", "\u{7f}", "\u{2028}", "\u{2066}", "\u{200b}", "\u{2060}", "\u{ad}", "\u{e0041}"]
        {
            let escaped = escape(hidden);
            assert!(escaped.is_ascii() && escape(&escaped) == escaped, "{hidden:?}: {escaped}");
            let json: Result<String, _> = serde_json::from_str(&format!("\"{escaped}\""));
            assert_eq!(json.unwrap(), hidden, "a line of JSON keeps its meaning");
        }
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 9), "aé");
    }

    #[test]
    fn a_bounded_text_never_exceeds_its_bound_whatever_it_escapes() {
        assert_eq!(bounded("short\n", 10), "short\\n");
        assert_eq!(bounded("0123456789a", 10), "0123456...");
        for text in ["\u{1}".repeat(900), "é".repeat(900), "a".repeat(900)] {
            for limit in [0, 2, 3, 100, 101] {
                assert!(bounded(&text, limit).len() <= limit);
            }
        }
    }
}
