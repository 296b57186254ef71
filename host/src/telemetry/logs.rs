//! Logs as text or JSON, one line per event, through a [`Buffer`] to a thread that writes them.

use std::{io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use podium_engine::ports::RUN_TARGET;
use podium_vocabulary::text;
use tracing::Level;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::LevelFilter,
    fmt::{self as subscriber, MakeWriter, format::JsonFields},
    layer::Layered,
    layer::SubscriberExt as _,
    reload,
    util::SubscriberInitExt as _,
};

use super::{
    buffer::{Buffer, Dropped, Lines},
    plugin_fields::{JsonLine, TextFields},
};

/// The subscriber below the formatters: events and spans that passed the filter.
type Filtered = Layered<reload::Layer<EnvFilter, Registry>, Registry>;

/// The longest wait for the last lines at the end of the process.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The format of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people: fields as `name=value`.
    #[default]
    Text,
    /// One object per line, for programs.
    Json,
}

/// Why logs cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// The filter cannot be parsed.
    #[error("{0:?} is not a log level; use error, warn, info, debug, trace, or directives such as info,podium=debug")]
    Level(String),
    /// The process has already set up its logs.
    #[error("logs are already set up")]
    Already,
    /// The process's logs have ended.
    #[error("logs have ended")]
    Ended,
}

/// The process's logs. Dropping it writes the buffered lines, which takes at most one second; later lines are lost.
#[must_use]
#[derive(Debug)]
pub struct Logs {
    buffer: Arc<Buffer>,
    levels: Arc<Levels>,
}

/// The filter of the process's log lines, which may be changed at any time.
#[derive(Debug)]
pub struct Levels {
    handle: reload::Handle<EnvFilter, Registry>,
    filter: Mutex<String>,
}

impl Levels {
    /// Returns the filter.
    #[must_use]
    pub fn filter(&self) -> String {
        self.filter.lock().clone()
    }

    /// Replaces the filter. The log names both, by the one before or, if that one hides it, by the new one.
    ///
    /// # Errors
    /// Returns an error if the filter cannot be parsed.
    pub fn set(&self, level: &str) -> Result<(), LogsError> {
        let parsed = filter(level)?;
        let mut filter = self.filter.lock();
        let before = text::line(&filter);
        let report = || tracing::warn!(filter = text::line(level), before, "log filter changed");
        let is_shown = tracing::enabled!(Level::WARN);
        if is_shown {
            report();
        }
        self.handle.reload(parsed).map_err(|_| LogsError::Ended)?;
        level.clone_into(&mut filter);
        if !is_shown {
            report();
        }
        Ok(())
    }
}

impl Logs {
    /// Returns the filter of the lines.
    #[must_use]
    pub fn levels(&self) -> Arc<Levels> {
        self.levels.clone()
    }

    /// Returns the counters of lines that did not fit into the buffer.
    #[must_use]
    pub fn dropped(&self) -> Arc<Dropped> {
        self.buffer.dropped().clone()
    }
}

#[cfg(test)]
impl Logs {
    /// Returns logs that nothing is written to.
    pub(crate) fn unset() -> Self {
        let (_, handle) = reload::Layer::new(EnvFilter::new("off"));
        let levels = Arc::new(Levels { handle, filter: Mutex::new("off".to_owned()) });
        Self { buffer: Buffer::new(), levels }
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.buffer.close(LAST_LINES);
    }
}

/// The writer of the lines; the caller runs it in a thread of its own.
#[must_use]
#[derive(Debug)]
pub struct LogWriter(Arc<Buffer>);

impl LogWriter {
    /// Writes lines until [`Logs`] is dropped.
    pub fn run(self, out: impl io::Write) {
        self.0.write_to(out);
    }
}

/// Sets up the process's logs. `level` is a level or a list of directives.
///
/// # Errors
/// Returns an error if the level cannot be parsed, or if logs were set up before.
pub fn init(level: &str, format: LogFormat) -> Result<(Logs, LogWriter), LogsError> {
    let (filter, handle) = reload::Layer::new(filter(level)?);
    let buffer = Buffer::new();
    install(filter, lines(Lines(buffer.clone()), format, false))?;
    let levels = Arc::new(Levels { handle, filter: Mutex::new(level.to_owned()) });
    Ok((Logs { buffer: buffer.clone(), levels }, LogWriter(buffer)))
}

/// Sets up logs for a terminal: text on standard error, unbuffered, in colour if `ansi` is set.
///
/// # Errors
/// See [`init`].
pub fn init_terminal(level: &str, ansi: bool) -> Result<(), LogsError> {
    install(reload::Layer::new(filter(level)?).0, lines(io::stderr, LogFormat::Text, ansi))
}

fn install(
    filter: reload::Layer<EnvFilter, Registry>,
    lines: impl Layer<Filtered> + Send + Sync,
) -> Result<(), LogsError> {
    tracing_subscriber::registry().with(filter).with(lines).try_init().map_err(|_| LogsError::Already)
}

/// Writes each event as one line.
fn lines<W>(writer: W, format: LogFormat, ansi: bool) -> Box<dyn Layer<Filtered> + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = subscriber::layer().with_writer(writer).with_ansi(ansi);
    match format {
        LogFormat::Text => layer.fmt_fields(TextFields).boxed(),
        LogFormat::Json => {
            let event = subscriber::format().json().flatten_event(true).with_span_list(false);
            layer.fmt_fields(JsonFields::new()).event_format(JsonLine(event)).boxed()
        }
    }
}

/// kube logs a warning at each connection whose certificate it does not verify. The host logs one at its start instead.
const QUIET: &str = "kube_client::client::tls=error,kube_client::client::builder=off";

/// Reads a filter. A bare word must be a level: as a directive it would name a target, and a mistyped level would
/// silence everything. Spans of runs pass every filter except `off`, so that each line of a run names its plugin and
/// its Pod.
fn filter(level: &str) -> Result<EnvFilter, LogsError> {
    let refused = || LogsError::Level(level.to_owned());
    let directives: Vec<&str> = level.split(',').map(str::trim).collect();
    let mut words = directives.iter().filter(|directive| !directive.contains('='));
    if words.any(|word| word.is_empty() || word.parse::<LevelFilter>().is_err()) {
        return Err(refused());
    }
    // Values of fields are compared as texts: a regular expression would match parts of other names, and may take
    // memory without bound.
    let parse = |text: &str| EnvFilter::builder().with_regex(false).parse(text).map_err(|_| refused());
    if directives == ["off"] {
        return parse("off");
    }
    let filter = parse(&format!("{QUIET},{}", directives.join(",")))?;
    let spans = format!("{RUN_TARGET}=error").parse().map_err(|_| refused())?;
    Ok(filter.add_directive(spans))
}

#[cfg(test)]
mod tests {
    use std::{io::Write, mem, sync::Mutex};

    use podium_engine::ports::PLUGIN_TARGET;
    use podium_pods::testing::{NASTY, assert_clean};

    use super::*;

    /// Lines in memory.
    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the lines of what `log` logs.
    fn logged_by(level: &str, format: LogFormat, log: impl FnOnce()) -> Vec<String> {
        let written = Memory::default();
        let sink = written.clone();
        let (filter, _) = reload::Layer::new(filter(level).unwrap());
        let subscriber = tracing_subscriber::registry().with(filter).with(lines(move || sink.clone(), format, false));
        tracing::subscriber::with_default(subscriber, log);
        let written = written.0.lock().unwrap().clone();
        String::from_utf8(written).unwrap().lines().map(str::to_owned).collect()
    }

    /// Returns the lines of a run with a warning of the host and a line of the plugin.
    fn logged(level: &str, format: LogFormat) -> Vec<String> {
        logged_by(level, format, || {
            let plugin = "shop/hello";
            let run = tracing::error_span!(target: RUN_TARGET, "reconcile", %plugin, pod = "cart-0", attempt = 2);
            run.in_scope(|| {
                tracing::debug!("ran");
                tracing::warn!(reason = "retry", "run failed");
                let plugin_fields =
                    serde_json::json!({"do": "panic", "error": "the teapot is empty", "level": "forged"});
                let plugin_fields = tracing::field::display(plugin_fields);
                tracing::info!(target: PLUGIN_TARGET, plugin_fields, "crowded");
            });
        })
    }

    #[test]
    fn failures_to_connect_are_logged_by_the_host_and_not_by_its_client_too() {
        let logged = |level: &str| {
            logged_by(level, LogFormat::Text, || {
                tracing::error!(target: "kube_client::client::builder", "failed with error");
                tracing::warn!(target: "kube_client::client::tls", "certificates are not verified");
                tracing::error!(target: "kube_client::client::tls", "another failure");
                tracing::warn!("the API server does not answer");
            })
        };
        assert_eq!((logged("info").len(), logged("debug").len()), (2, 2), "{:?}", logged("info"));
        // Whoever looks for a fault of it sees its lines.
        assert_eq!(logged("info,kube_client::client::builder=error").len(), 3);
    }

    #[test]
    fn the_filter_changes_while_the_process_runs_also_for_one_plugin() {
        let written = Memory::default();
        let sink = written.clone();
        let (layer, handle) = reload::Layer::new(filter("info").unwrap());
        let levels = Levels { handle, filter: parking_lot::Mutex::new("info".to_owned()) };
        let lines = lines(move || sink.clone(), LogFormat::Text, false);
        let subscriber = tracing_subscriber::registry().with(layer).with(lines);
        tracing::subscriber::with_default(subscriber, || {
            let logged = |filter: &str| {
                levels.set(filter).unwrap();
                written.0.lock().unwrap().clear();
                for plugin in ["shop/hello", "shop/other", "eshop/hello", "hello"] {
                    let run =
                        tracing::error_span!(target: RUN_TARGET, "reconcile", %plugin, pod = "cart-0", attempt = 2);
                    run.in_scope(|| tracing::debug!(target: PLUGIN_TARGET, "here"));
                }
                let bytes = mem::take(&mut *written.0.lock().unwrap());
                String::from_utf8(bytes).unwrap().lines().count()
            };
            assert_eq!(logged("info"), 0);
            assert_eq!(logged("debug"), 4);
            assert_eq!(logged("info,[reconcile{plugin=shop/hello}]=debug"), 1);
            assert_eq!(logged("info,[reconcile{plugin=hello}]=debug"), 1);
            // As a regular expression this one has more states than a machine has memory.
            assert_eq!(logged(&format!("info,[a{{b=(0|1)*1{}}}]=debug", "(0|1)".repeat(25))), 0);
            assert_eq!(logged("warn"), 0);
            levels.set("off").unwrap();
            levels.set("warn").unwrap();
            let bytes = mem::take(&mut *written.0.lock().unwrap());
            let lines = String::from_utf8(bytes).unwrap();
            assert_eq!(lines.matches("log filter changed").count(), 2, "also of the change to off: {lines}");
        });
        assert_eq!((levels.filter().as_str(), levels.set("loud").is_err()), ("warn", true));
        assert_eq!(levels.filter(), "warn", "as before");
    }

    #[test]
    fn every_line_of_a_run_names_plugin_pod_and_attempt() {
        for (level, count) in [
            ("warn,podium::plugin=debug", 2),
            ("error,podium::plugin=info", 1),
            ("off,podium::plugin=info", 1),
            ("podium_host=warn", 1),
            ("info", 2),
            ("off", 0),
        ] {
            let text = logged(level, LogFormat::Text);
            assert_eq!(text.len(), count, "{level}: {text:?}");
            for line in text {
                for part in ["plugin=shop/hello", r#"pod="cart-0""#, "attempt=2"] {
                    assert!(line.contains(part), "{level}: {line}");
                }
            }
            for line in logged(level, LogFormat::Json) {
                let line: serde_json::Value = serde_json::from_str(&line).unwrap();
                assert_eq!((&line["span"]["pod"], &line["span"]["attempt"]), (&"cart-0".into(), &2.into()), "{level}");
            }
        }
    }

    #[test]
    fn a_plugins_fields_never_replace_those_of_the_host() {
        let text = logged("podium::plugin=info", LogFormat::Text);
        assert!(text[0].ends_with(r#"crowded do=panic error="the teapot is empty" level=forged"#), "{text:?}");
        let json: serde_json::Value = serde_json::from_str(&logged("podium::plugin=info", LogFormat::Json)[0]).unwrap();
        assert_eq!(json["fields"]["do"], "panic");
        assert_eq!((&json["level"], &json["message"]), (&"INFO".into(), &"crowded".into()), "{json}");
        assert!(json["plugin_fields"].is_null(), "{json}");
    }

    #[test]
    fn a_field_that_is_named_like_a_command_of_the_json_library_stays_text() {
        let name = "$serde_json::private::RawValue";
        let value = r#"{"level":["forged"]}"#;
        let written = Memory::default();
        let sink = written.clone();
        let lines = lines(move || sink.clone(), LogFormat::Json, false);
        let subscriber = tracing_subscriber::registry().with(reload::Layer::new(filter("info").unwrap()).0).with(lines);
        tracing::subscriber::with_default(subscriber, || {
            let plugin_fields = tracing::field::display(serde_json::json!({ name: value }));
            tracing::info!(target: PLUGIN_TARGET, plugin_fields, "crowded");
        });
        let line = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&line).unwrap();
        assert!(object["fields"].is_object() && line.contains(r#"RawValue":"{\"level\""#), "{line}");
    }

    /// Logs [`NASTY`] as a message and as fields of the host's and of a plugin's.
    fn log_nasty() {
        let plugin_fields = serde_json::Map::from_iter([(NASTY.to_owned(), NASTY.into())]);
        let plugin_fields = tracing::field::display(serde_json::Value::Object(plugin_fields));
        let run = tracing::error_span!(target: RUN_TARGET, "reconcile", plugin = NASTY, pod = %NASTY);
        run.in_scope(|| {
            tracing::info!(target: PLUGIN_TARGET, plugin_fields, "{NASTY}");
            tracing::warn!(error = NASTY, reason = %NASTY, debug = ?NASTY, "{NASTY}");
        });
    }

    #[test]
    fn a_nasty_text_is_one_clean_line_in_both_formats_and_on_a_terminal() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let buffer = Buffer::new();
            let subscriber = tracing_subscriber::registry()
                .with(reload::Layer::new(filter("info").unwrap()).0)
                .with(lines(Lines(buffer.clone()), format, false));
            tracing::subscriber::with_default(subscriber, log_nasty);
            buffer.close(Duration::ZERO);
            let mut written = Vec::new();
            buffer.write_to(&mut written);
            let written = String::from_utf8(written).unwrap();
            assert_eq!(written.lines().count(), 2, "{written}");
            for line in written.lines() {
                assert_clean(line, 4 << 10);
                if format == LogFormat::Json {
                    let line: serde_json::Value = serde_json::from_str(line).unwrap();
                    let message = line["message"].as_str().unwrap();
                    assert!(message.starts_with("a\n2026") && message.ends_with('\u{e007f}'), "its meaning is kept");
                }
            }
        }
        let terminal = Memory::default();
        let sink = terminal.clone();
        let lines = lines(move || sink.clone(), LogFormat::Text, false);
        tracing::subscriber::with_default(
            tracing_subscriber::registry().with(reload::Layer::new(filter("info").unwrap()).0).with(lines),
            log_nasty,
        );
        let written = String::from_utf8(terminal.0.lock().unwrap().clone()).unwrap();
        assert_eq!(written.lines().count(), 2, "{written}");
        written.lines().for_each(|line| assert_clean(line, 4 << 10));
    }

    #[test]
    fn a_level_or_directives_are_taken_and_a_mistyped_level_is_not() {
        for level in ["info", "WARN", "off", "info,podium=debug", "podium_host=debug", "warn, podium::plugin=info"] {
            assert!(filter(level).is_ok(), "{level}");
        }
        for level in ["loud", "inof", "", "info,podium_host", "podium_host=loud"] {
            assert!(filter(level).is_err(), "{level:?}");
        }
    }
}
