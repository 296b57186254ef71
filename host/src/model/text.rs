//! Bounds and escapes for text from outside: of guests, and of whatever answers requests.

/// Cuts at a character's boundary, at most `limit` bytes.
#[must_use]
pub fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Escapes what would forge lines or reorder text on a terminal: control characters, line and paragraph separators and
/// the bidirectional overrides.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        let hostile = character.is_control()
            || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if hostile {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Escapes and cuts a text to at most `limit` bytes; a text that was cut ends with "...".
#[must_use]
pub fn bounded(text: &str, limit: usize) -> String {
    const MARK: &str = "...";
    // No character becomes shorter by being escaped.
    let mut escaped = escape(cut(text, limit));
    if text.len() > limit || escaped.len() > limit {
        escaped.truncate(cut(&escaped, limit.saturating_sub(MARK.len())).len());
        escaped.push_str(cut(MARK, limit));
    }
    escaped
}

/// Texts up to a sum of bytes: those that no longer fit are left out.
#[derive(Debug)]
pub struct Budget(usize);

impl Budget {
    #[must_use]
    pub const fn new(bytes: usize) -> Self {
        Self(bytes)
    }

    /// Empties a text that does not fit into what is left.
    pub fn take(&mut self, text: &mut String) {
        match self.0.checked_sub(text.len()) {
            Some(left) => self.0 = left,
            None => *text = String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_forge_a_log_line_or_reorder_one() {
        assert_eq!(escape("a\nb\u{1b}[2J\u{202e}c é"), "a\\nb\\u{1b}[2J\\u{202e}c é");
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
