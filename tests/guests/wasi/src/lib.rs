//! Built for wasm32-wasip2: prints, reads both clocks, sleeps, reads random numbers; its configuration makes it panic
//! or exit.

use std::time::{Duration, Instant, SystemTime};

use bindings::{Failure, Outcome, Request};

bindings::guest!(reconcile);

fn reconcile(request: Request) -> Result<Outcome, Failure> {
    match request.config.as_str() {
        "\"read the clock for ever\"" => loop {
            std::hint::black_box(SystemTime::now());
        },
        "\"print for ever\"" => loop {
            eprintln!();
        },
        _ => {}
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    println!("now {}", now.as_millis());
    let before = Instant::now();
    std::thread::sleep(Duration::from_secs(3_600));
    println!("slept {}", before.elapsed().as_secs());
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 1);
    println!("random {random}");
    println!("arguments {}", std::env::args().count());
    eprint!("no end of line");
    match request.config.as_str() {
        "\"panic\"" => panic!("printed panic"),
        "\"exit\"" => std::process::exit(3),
        _ => Ok(Outcome::Settled),
    }
}
