//! Watches that the API server refuses repeatedly in the same way. Waiting does not help if the revision is the
//! reason, so a list follows after several refusals.

/// Refusals in a row before the first list.
const FIRST: u32 = 5;
/// Upper bound of the limit. If a list does not help either, each further one follows after twice as many refusals.
const MAX_IN_A_ROW: u32 = 64;

#[derive(Debug)]
pub(super) struct Refusals {
    code: u16,
    in_a_row: u32,
    /// Refusals after which a list is requested.
    limit: u32,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { code: 0, in_a_row: 0, limit: FIRST }
    }
}

impl Refusals {
    /// Counts a refusal with this status code. Returns true if a list should be tried.
    pub(super) fn refused(&mut self, code: u16) -> bool {
        // The API server, or a proxy before it, is overloaded or unreachable: a list would add load.
        if matches!(code, 408 | 429 | 502..=504) {
            return false;
        }
        self.in_a_row = if code == self.code { self.in_a_row + 1 } else { 1 };
        self.code = code;
        let list = self.in_a_row >= self.limit;
        if list {
            self.in_a_row = 0;
            self.limit = (self.limit * 2).min(MAX_IN_A_ROW);
        }
        list
    }

    /// Records that a watch has sent an event.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_follow_five_equal_refusals_and_then_become_rarer() {
        let mut refusals = Refusals::default();
        let lists: Vec<_> = (1..=80).filter(|_| refusals.refused(403)).collect();
        assert_eq!(lists.len(), 4, "after 5, 10, 20 and 40");
        refusals.end();
        let mut answers =
            [400, 400, 400, 400, 500, 400, 400, 400, 400, 429, 503, 400].map(|code| refusals.refused(code)).into_iter();
        assert!(answers.by_ref().take(11).all(|list| !list) && answers.next() == Some(true));
    }
}
