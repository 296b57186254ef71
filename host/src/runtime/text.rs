//! Bounds and escapes for text that comes from a guest.

use crate::model::Refused;

/// Cuts at a character's boundary, at most `limit` bytes.
pub(super) fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Escapes what would forge lines or reorder text on a terminal: control characters, line and paragraph separators and
/// the bidirectional overrides.
pub(super) fn escape(text: &str) -> String {
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

/// # Errors
/// [`Refused::Invalid`] when the argument `name` is longer than `limit` bytes.
pub(super) fn at_most(name: &str, value: &str, limit: usize) -> Result<(), Refused> {
    if value.len() > limit {
        return Err(Refused::Invalid(format!("{name}: {} bytes, at most {limit}", value.len())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_cannot_forge_a_log_line_or_reorder_one() {
        assert_eq!(escape("a\nb\u{1b}[2J\u{202e}c é"), "a\\nb\\u{1b}[2J\\u{202e}c é");
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 9), "aé");
    }
}
