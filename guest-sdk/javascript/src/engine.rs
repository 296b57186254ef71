//! QuickJS: compiles a script, and executes its runs.

use std::cell::{Cell, RefCell};

use rquickjs::{
    Coerced, Context, Ctx, Error, Exception, FromJs, Function, Module, Object, Persistent, Promise, Runtime, Value,
    WriteOptions,
    context::intrinsic,
    function::{Rest, This},
    qjs,
};

use crate::{
    bindings::{
        exports::podium::reconcile::{
            preparation::ScriptError,
            reconciler_json::{Failure, Outcome, Request, Subject},
        },
        podium::reconcile::program,
    },
    calls::{self, OPEN, Report},
};

/// The module that scripts import, and its name.
const LIBRARY: (&str, &str) = ("podium", include_str!("podium.js"));
/// The name of every script in stacks and messages.
const SCRIPT: &str = "plugin.js";
/// The bytes of the stack in memory after which QuickJS throws instead of calling deeper: about 480 calls of functions.
/// The host's stack of 1 MiB, which QuickJS cannot see, holds up to four times as much for these.
const CALLS: u32 = 128 << 10;
/// The same for functions that recurse without a call, such as `JSON.parse`, beyond the calls before.
const DATA: u32 = 16 << 10;
/// The same for the compiler. About 250 parentheses.
const SOURCE: u32 = 24 << 10;

/// The most characters of a reason that nothing has handled.
const MOST_TEXT: usize = 4 << 10;

thread_local! {
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
    /// The clock in microseconds since the Unix epoch.
    static NOW: Cell<f64> = const { Cell::new(0.0) };
    /// The stack's address at the start of QuickJS, and the bytes below it that may be used.
    static STACK: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    /// The number of rejections that nothing has handled, and the text of the latest one.
    static UNHANDLED: RefCell<(i32, String)> = const { RefCell::new((0, String::new())) };
}

/// QuickJS's only import: the clock, which stands still within a run.
#[expect(unsafe_code, reason = "the C sources link to the name, and nothing else has it")]
#[unsafe(no_mangle)]
extern "C" fn __rquickjs_host_now_us() -> f64 {
    NOW.get()
}

/// A script that is loaded and can run. Its fields are dropped in this order.
struct Engine {
    host: Persistent<Object<'static>>,
    reconcile: Persistent<Function<'static>>,
    context: Context,
}

/// Compiles and links a script without executing it.
pub(crate) fn prepare(source: String) -> Result<Vec<u8>, ScriptError> {
    let internal = |error: Error| ScriptError { message: error.to_string(), line: 0, column: 0 };
    let runtime = runtime(0.0, SOURCE).map_err(internal)?;
    Context::full(&runtime).map_err(internal)?.with(|ctx| {
        let library = Module::declare(ctx.clone(), LIBRARY.0, LIBRARY.1).map_err(internal)?;
        let mut bytes = library.write(WriteOptions { strip_debug: true, ..stripped() }).map_err(internal)?;
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        bytes.splice(0..0, length);
        let host = start(&ctx, library).map_err(internal)?;
        let script = || {
            let script = Module::declare(ctx.clone(), SCRIPT, source.as_str())?.write(stripped())?;
            // The modules are linked before one is evaluated, and the first that is evaluated ends it.
            Module::declare(ctx.clone(), "podium/end", "throw null")?;
            let imports = format!("import 'podium/end'; import reconcile from '{SCRIPT}'; reconcile;");
            match Module::evaluate(ctx.clone(), "podium/link", imports)?.finish::<()>() {
                Err(Error::Exception) if ctx.catch().is_null() => Ok(script),
                Err(error) => Err(error),
                Ok(()) => Err(Error::Unknown),
            }
        };
        match script() {
            Ok(script) => Ok(bytes.into_iter().chain(script).collect()),
            Err(error) => Err(located(&thrown(&ctx, &host, error).1, &source)),
        }
    })
}

/// The options of code without its text, which only `Function.prototype.toString` would show.
fn stripped() -> WriteOptions {
    WriteOptions { strip_source: true, ..WriteOptions::default() }
}

/// Executes one run. An instance that the host uses again keeps the script loaded, unless the run failed.
pub(crate) fn run(request: Request) -> Result<Outcome, Failure> {
    let now = request.now_millis as f64 * 1e3;
    let engine = match ENGINE.take() {
        Some(engine) => engine,
        None => load(now)?,
    };
    NOW.set(now);
    UNHANDLED.take();
    let outcome = engine.context.with(|ctx| {
        let host = engine.host.clone().restore(&ctx).map_err(failure)?;
        let result = call(&ctx, &host, engine.reconcile.clone(), request);
        OPEN.set(false);
        match result.and_then(|object| outcome(&ctx, &object)) {
            Ok(outcome) => outcome,
            Err(error) => Err(failed(thrown(&ctx, &host, error))),
        }
    })?;
    ENGINE.set(Some(engine));
    Ok(outcome)
}

/// Loads the script that the host has prepared.
fn load(now: f64) -> Result<Engine, Failure> {
    let bytes = program::code();
    let (length, code) = bytes.split_first_chunk().ok_or_else(changed)?;
    let (library, script) = code.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(changed)?;
    let context = context(&runtime(now, CALLS).map_err(failure)?).map_err(failure)?;
    let (host, reconcile) = context.with(|ctx| {
        let declare = |code: &[u8]| {
            #[expect(unsafe_code, reason = "QuickJS trusts its own code")]
            // SAFETY: the host passes only bytes that `prepare` of this very component returned. Other bytes could do
            // no more than this script's own sandbox permits.
            unsafe {
                Module::load(ctx.clone(), code)
            }
        };
        let host = start(&ctx, declare(library).map_err(failure)?).map_err(failure)?;
        match declare(script).and_then(|_| entry(&ctx)) {
            Ok(reconcile) => Ok((Persistent::save(&ctx, host), Persistent::save(&ctx, reconcile))),
            Err(error) => Err(failed(thrown(&ctx, &host, error))),
        }
    })?;
    Ok(Engine { host, reconcile, context })
}

fn runtime(now: f64, stack: u32) -> rquickjs::Result<Runtime> {
    NOW.set(now);
    let runtime = Runtime::new()?;
    runtime.set_max_stack_size(stack as usize);
    STACK.set((stack_pointer(), stack));
    runtime.set_host_promise_rejection_tracker(Some(Box::new(|ctx, _, reason, handled| {
        if handled {
            UNHANDLED.with_borrow_mut(|(count, _)| *count -= 1);
            return;
        }
        // Before the borrow: this may call the script, which may reject another promise.
        let text = text(&ctx, &reason).unwrap_or_else(|_| {
            ctx.catch();
            String::new()
        });
        UNHANDLED.with_borrow_mut(|(count, latest)| {
            *count += 1;
            *latest = text.chars().take(MOST_TEXT).collect();
        });
    })));
    Ok(runtime)
}

/// Returns the text of any value, or the start of it as JSON if it has lone surrogates, which are escapes there.
fn text<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> rquickjs::Result<String> {
    let Coerced(text) = value.get::<Coerced<rquickjs::String<'js>>>()?;
    match text.to_string() {
        Err(Error::Utf8(_)) => {
            let prototype: Object<'js> = ctx.globals().get::<_, Object<'js>>("String")?.get("prototype")?;
            let start: Value<'js> = prototype.get::<_, Function<'js>>("slice")?.call((This(text), 0, MOST_TEXT))?;
            ctx.json_stringify(start)?.ok_or(Error::Unknown)?.to_string()
        }
        text => text,
    }
}

/// Returns a context without the compiler, because `eval` would recurse beyond the host's stack, and without what
/// shows when memory is collected.
fn context(runtime: &Runtime) -> rquickjs::Result<Context> {
    use intrinsic::{Date, Json, MapSet, Performance, Promise, Proxy, RegExp, RegExpCompiler, TypedArrays};
    type All = (Date, RegExpCompiler, RegExp, Json, Proxy, MapSet, TypedArrays, Promise, Performance);
    let context = Context::custom::<All>(runtime)?;
    #[expect(unsafe_code, reason = "rquickjs has no name for atob and btoa")]
    // SAFETY: the context is alive and nothing uses it yet.
    unsafe {
        qjs::JS_AddIntrinsicAToB(context.as_raw().as_ptr());
    }
    Ok(context)
}

/// Calls a function that recurses without calls of JavaScript, with less stack.
pub(crate) fn shallow<'js>(
    ctx: Ctx<'js>,
    function: Function<'js>,
    this: Value<'js>,
    values: Rest<Value<'js>>,
) -> rquickjs::Result<Value<'js>> {
    let (top, allowed) = STACK.get();
    let limit = |bytes| {
        STACK.set((top, bytes));
        #[expect(unsafe_code, reason = "rquickjs would wait for its own lock")]
        // SAFETY: the context and its runtime are alive, and the call writes two numbers.
        unsafe {
            qjs::JS_SetMaxStackSize(qjs::JS_GetRuntime(ctx.as_raw().as_ptr()), bytes);
        }
    };
    limit(allowed.min(top.saturating_sub(stack_pointer()) + DATA));
    let result = function.call((This(this), values));
    limit(allowed);
    result
}

/// Returns about the stack's present address.
#[inline(never)]
fn stack_pointer() -> u32 {
    let here = 0_u8;
    (&raw const *std::hint::black_box(&here)).addr() as u32
}

/// Evaluates the library, and returns the functions that it and the runner share.
fn start<'js>(ctx: &Ctx<'js>, library: Module<'js>) -> rquickjs::Result<Object<'js>> {
    let host = calls::all(ctx)?;
    ctx.globals().set("__podium", host.clone())?;
    library.eval()?.1.finish::<()>()?;
    Ok(host)
}

/// Evaluates the declared script, and returns its entry.
fn entry<'js>(ctx: &Ctx<'js>) -> rquickjs::Result<Function<'js>> {
    let module: Object<'js> = finish(ctx, &Module::import(ctx, SCRIPT)?)?;
    let entry: Value<'js> = module.get("default")?;
    entry.into_function().ok_or_else(|| {
        Exception::throw_type(ctx, "the script exports no function: `export default function reconcile({ pod }) {..}`")
    })
}

fn call<'js>(
    ctx: &Ctx<'js>,
    host: &Object<'js>,
    reconcile: Persistent<Function<'static>>,
    request: Request,
) -> rquickjs::Result<Object<'js>> {
    let argument = Object::new(ctx.clone())?;
    // FNV-1a of the Pod's uid and the time.
    let seed = request.key.uid.bytes().chain(request.now_millis.to_le_bytes());
    argument
        .set("seed", seed.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)))?;
    let key = Object::new(ctx.clone())?;
    key.set("namespace", request.key.namespace)?;
    key.set("name", request.key.name)?;
    key.set("uid", request.key.uid)?;
    argument.set("key", key)?;
    match request.subject {
        Subject::Present(pod) => argument.set("pod", pod)?,
        Subject::Deleted(pod) => argument.set("deleted", pod)?,
    }
    argument.set("now", request.now_millis as f64)?;
    argument.set("attempt", request.attempt)?;
    argument.set("config", request.config)?;
    argument.set("unsettled", request.unsettled_writes.into_iter().map(Report).collect::<Vec<_>>())?;
    OPEN.set(true);
    let promise: Promise<'js> = host.get::<_, Function<'js>>("run")?.call((reconcile, argument))?;
    finish(ctx, &promise)
}

/// Executes jobs until the promise is resolved.
fn finish<'js, T: FromJs<'js>>(ctx: &Ctx<'js>, promise: &Promise<'js>) -> rquickjs::Result<T> {
    promise.finish().map_err(|error| match error {
        Error::WouldBlock => Exception::throw_message(
            ctx,
            "the script awaits a promise that nothing resolves: there are no timers and no I/O but calls of the host",
        ),
        error => error,
    })
}

/// Executes the jobs that are left, and returns the run's outcome.
fn outcome<'js>(ctx: &Ctx<'js>, object: &Object<'js>) -> rquickjs::Result<Result<Outcome, Failure>> {
    while ctx.execute_pending_job() {}
    let text = || object.get::<_, String>("text");
    Ok(match (object.get::<_, String>("kind")?.as_str(), UNHANDLED.take()) {
        ("terminal", _) => Err(Failure::Terminal(text()?)),
        ("retry", _) => Err(Failure::Retry(text()?)),
        (_, (1.., reason)) => Err(Failure::Retry(format!("a promise was rejected and nothing awaited it: {reason}"))),
        ("stop", _) => Ok(Outcome::Stop),
        ("requeue", _) => {
            let millis = object.get::<_, f64>("millis")? as u64;
            Ok(Outcome::RequeueAfterMillis(millis))
        }
        _ => Ok(Outcome::Settled),
    })
}

/// Returns the kind and the text of an error, in the words of the library.
fn thrown<'js>(ctx: &Ctx<'js>, host: &Object<'js>, error: Error) -> (String, String) {
    let described = || {
        let Error::Exception = error else { return Err(Error::Unknown) };
        let failure: Object<'js> = host.get::<_, Function<'js>>("failure")?.call((ctx.catch(),))?;
        Ok((failure.get("kind")?, failure.get("text")?))
    };
    described().unwrap_or_else(|_: Error| {
        ctx.catch();
        ("retry".to_owned(), error.to_string())
    })
}

/// Returns the error with the position that ends its text, or that of the name in quotes that it is about.
fn located(text: &str, source: &str) -> ScriptError {
    let place = text.strip_suffix(')').and_then(|text| text.rsplit_once(&format!(" ({SCRIPT}:")));
    let position = place.and_then(|(message, at)| {
        let (line, column) = at.split_once(':')?;
        Some(ScriptError { message: message.to_owned(), line: line.parse().ok()?, column: column.parse().ok()? })
    });
    position.unwrap_or_else(|| {
        let name = text.split('\'').nth(1).filter(|name| !name.is_empty());
        let at = name.and_then(|name| {
            let mut lines = (1..).zip(source.lines());
            lines.find_map(|(line, text)| Some((line, text[..text.find(name)?].chars().count() as u32 + 1)))
        });
        let (line, column) = at.unwrap_or_default();
        let hint = if text.contains("could not load module") {
            ": a script is one file and imports only \"podium\"; bundle other modules into it"
        } else if name == Some("default") {
            ": export the plugin's function, `export default function reconcile({ pod }) {..}`"
        } else {
            ""
        };
        ScriptError { message: format!("{text}{hint}"), line, column }
    })
}

fn failed((kind, text): (String, String)) -> Failure {
    if kind == "terminal" { Failure::Terminal(text) } else { Failure::Retry(text) }
}

fn failure(error: Error) -> Failure {
    Failure::Retry(error.to_string())
}

fn changed() -> Failure {
    Failure::Terminal("the prepared script is not one of this runner".to_owned())
}
