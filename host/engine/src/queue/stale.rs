//! [`Marks`]: the highest number of a due slot at each second of the last half minute. With them slots that have been
//! due for longer are counted, without a time in each slot.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// A key that is due for longer than this, and not taken, is stale.
const STALE: Duration = Duration::from_secs(30);
/// The time that one mark stands for.
const STEP: Duration = Duration::from_secs(1);

/// At most 32 marks of 24 bytes.
#[derive(Debug, Default)]
pub(super) struct Marks(VecDeque<Mark>);

#[derive(Debug)]
struct Mark {
    first: Instant,
    last: Instant,
    /// The number of the slot that became due last.
    number: u64,
}

impl Marks {
    /// Records that a slot became due. Its number is higher than all before.
    pub(super) fn due(&mut self, number: u64, now: Instant) {
        match self.0.back_mut() {
            Some(mark) if now < mark.first + STEP => (mark.last, mark.number) = (now, number),
            _ => self.0.push_back(Mark { first: now, last: now, number }),
        }
        // The newest of the old marks stands for those before it.
        while self.0.get(1).is_some_and(|second| is_stale(second, now)) {
            self.0.pop_front();
        }
    }

    /// Returns the highest number of the slots that have been due for more than 30 s, or up to a second longer;
    /// `None` if there is none.
    pub(super) fn stale(&self, now: Instant) -> Option<u64> {
        self.0.iter().take_while(|mark| is_stale(mark, now)).last().map(|mark| mark.number)
    }
}

fn is_stale(mark: &Mark, now: Instant) -> bool {
    now.saturating_duration_since(mark.last) > STALE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_number_is_stale_after_30_s_and_marks_are_bounded() {
        let (mut marks, begin) = (Marks::default(), Instant::now());
        let at = |millis: u64| begin + Duration::from_millis(millis);
        assert_eq!(marks.stale(at(99_000)), None);
        // One number every 100 ms for two minutes.
        for number in 0..1_200 {
            marks.due(number, at(100 * number));
            let stale = marks.stale(at(100 * number));
            let (least, most) = (number.checked_sub(311), number.checked_sub(301));
            assert!(least <= stale && stale <= most, "{stale:?} at {number}");
            assert!(marks.0.len() <= 32, "{} marks", marks.0.len());
        }
        assert_eq!(marks.stale(at(119_900 + 30_000)), Some(1_189), "due for exactly 30 s");
        assert_eq!(marks.stale(at(119_900 + 30_001)), Some(1_199));
        marks.due(1_200, at(500_000));
        assert_eq!((marks.stale(at(500_000)), marks.0.len()), (Some(1_199), 2));
    }
}
