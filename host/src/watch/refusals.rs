//! Watches that the API server refuses again and again in the same way: waiting does not end a refusal of this
//! revision, so a list comes after some of them.

/// After so many in a row.
const FIRST: u32 = 5;
/// Where lists do not help either, each comes after twice as many refusals as the one before it, up to here.
const MOST: u32 = 64;

#[derive(Debug)]
pub(super) struct Refusals {
    code: u16,
    in_a_row: u32,
    /// Ask for a list after so many.
    limit: u32,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { code: 0, in_a_row: 0, limit: FIRST }
    }
}

impl Refusals {
    /// Counts a refusal with this status code. Returns true when a list is to be tried.
    pub(super) fn refused(&mut self, code: u16) -> bool {
        // The API server, or a proxy before it, has no time or no connection: a list would only cost it more.
        if matches!(code, 408 | 429 | 502..=504) {
            return false;
        }
        self.in_a_row = if code == self.code { self.in_a_row + 1 } else { 1 };
        self.code = code;
        let list = self.in_a_row >= self.limit;
        if list {
            (self.in_a_row, self.limit) = (0, (self.limit * 2).min(MOST));
        }
        list
    }

    /// A watch has sent an event.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_after_five_equal_refusals_and_then_ever_less_often() {
        let mut refusals = Refusals::default();
        let lists: Vec<_> = (1..=80).filter(|_| refusals.refused(403)).collect();
        assert_eq!(lists.len(), 4, "after 5, 10, 20 and 40");
        refusals.end();
        let mut answers =
            [400, 400, 400, 400, 500, 400, 400, 400, 400, 429, 503, 400].map(|code| refusals.refused(code)).into_iter();
        assert!(answers.by_ref().take(11).all(|list| !list) && answers.next() == Some(true));
    }
}
