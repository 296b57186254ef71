//! Performs the attack that its configuration names. Most attacks end with a failure whose text counts the host's
//! answers, such as `12 invalid, 3 not-granted`; `tests/tests/hostile` has the table of attacks and their ends.

mod floods;
mod names;
mod objects;
mod tally;
mod texts;
mod wakes;

use bindings::{Failure, Outcome, Request, types::PodKey};
use tally::Tally;

bindings::guest!(reconcile);

/// Counts its answers; `Some` is another end of the run than the report of the tally.
type Attack = fn(&Request, &mut Tally) -> Option<Result<Outcome, Failure>>;

fn reconcile(request: Request) -> Result<Outcome, Failure> {
    let name = request.config.trim_matches('"').to_owned();
    let tables = [names::ATTACKS, objects::ATTACKS, floods::ATTACKS, texts::ATTACKS, wakes::ATTACKS];
    let Some((_, attack)) = tables.into_iter().flatten().find(|(known, _)| *known == name) else {
        return Err(Failure::Terminal(format!("no attack {name}")));
    };
    let mut tally = Tally::default();
    let end = attack(&request, &mut tally);
    end.unwrap_or_else(|| Err(Failure::Terminal(tally.to_string())))
}

/// The victim: a Pod of another tenant.
fn foreign() -> PodKey {
    PodKey { namespace: "bank".into(), name: "vault-0".into(), uid: "uid-of-vault-0".into() }
}

/// Texts that a careless host would take for another name, or put into a path.
fn tricks() -> Vec<String> {
    let mut tricks: Vec<String> = [
        "",
        ".",
        "..",
        "/",
        "../bank",
        "shop/../bank",
        "../../bank/pods/vault-0",
        "%2e%2e%2fbank",
        "bank%2fvault-0",
        "bank\0",
        "BANK",
        "Bank",
        "b\u{430}nk",
        "\u{ff42}ank",
        "bank ",
        " bank",
        "bank/",
        "ba\u{200b}nk",
        "bank\n",
        "bank?x=1",
        "bank#x",
        "bank;x",
        "bank\\x",
        "\u{202e}knab",
        "-bank",
        "bank.",
    ]
    .map(str::to_owned)
    .into();
    tricks.push("x".repeat(64 << 10));
    tricks
}
