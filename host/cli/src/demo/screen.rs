//! [`Screen`]: the progress of a demo.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar};

use crate::ui;

/// Shows steps and rows on a terminal, and otherwise only the steps, one line each. Writes to stderr.
pub(super) struct Screen {
    lines: MultiProgress,
    step: ProgressBar,
    rows: ProgressBar,
}

impl Screen {
    pub(super) fn new() -> Self {
        let lines = MultiProgress::with_draw_target(ui::draw_target());
        let line = |template| lines.add(ProgressBar::new_spinner().with_style(ui::style(template)));
        let step = line("\n{spinner} {msg}");
        let rows = line("{msg}");
        step.enable_steady_tick(Duration::from_millis(120));
        Self { lines, step, rows }
    }

    /// Shows the present step.
    pub(super) fn step(&self, what: &str) {
        if ui::interactive() {
            self.step.set_message(what.to_owned());
        } else {
            eprintln!("{what}");
        }
    }

    /// Shows a result, which stays on the screen.
    pub(super) fn note(&self, what: &str) {
        if ui::interactive() {
            // If the terminal is closed, the line is lost and the demo continues.
            let _ = self.lines.println(format!("  {what}"));
        } else {
            eprintln!("  {what}");
        }
    }

    /// Shows a table below the steps.
    pub(super) fn rows(&self, table: String) {
        self.rows.set_message(table);
    }

    pub(super) fn finish(&self) {
        self.step.finish_and_clear();
        self.rows.finish_and_clear();
    }
}
