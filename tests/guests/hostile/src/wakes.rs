//! Results and writes that contradict each other or wake the plugin again and again, memory, and the witness of what an
//! earlier run left.

use bindings::{Failure, Outcome, types::PodKey, writes};

use crate::Attack;

pub const ATTACKS: &[(&str, Attack)] = &[
    ("requeue-after-the-end-of-time", |_, _| Some(Ok(Outcome::RequeueAfterMillis(u64::MAX)))),
    ("delete-and-write", |request, _| {
        let key = &request.key;
        let _ = writes::delete_pod(key, Some(0));
        let _ = writes::set_label(key, "guests.example/a", "1");
        let _ = writes::evict_pod(key);
        let _ = writes::add_finalizer(key, "guests.example/a");
        Some(Ok(Outcome::RequeueAfterMillis(0)))
    }),
    ("set-and-remove-the-same", |request, _| {
        for _ in 0..5 {
            let _ = writes::set_label(&request.key, "guests.example/a", "1");
            let _ = writes::remove_label(&request.key, "guests.example/a");
            let _ = writes::add_finalizer(&request.key, "guests.example/a");
            let _ = writes::remove_finalizer(&request.key, "guests.example/a");
        }
        Some(Ok(Outcome::Settled))
    }),
    ("write-to-another-incarnation", |request, _| {
        let earlier = PodKey { uid: "an-earlier-uid".into(), ..request.key.clone() };
        let _ = writes::set_label(&earlier, "guests.example/a", "1");
        Some(Ok(Outcome::Settled))
    }),
    ("fail-after-staging", |request, _| {
        let _ = writes::set_label(&request.key, "guests.example/a", "1");
        Some(Err(Failure::Retry("again".into())))
    }),
    ("trap-after-staging", |request, _| {
        let _ = writes::set_label(&request.key, "guests.example/a", "1");
        std::process::abort()
    }),
    ("take-memory-without-an-end", |_, _| {
        let mut taken = Vec::new();
        loop {
            taken.push(std::hint::black_box(vec![0xa5_u8; 1 << 20]));
        }
    }),
    ("recurse-without-an-end", |_, _| Some(Ok(Outcome::RequeueAfterMillis(deeper(1))))),
];

/// Calls itself and uses the results, so that no call is the last.
fn deeper(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    if depth == u64::MAX { 0 } else { deeper(frame[7] + 1).wrapping_add(std::hint::black_box(frame[3])) }
}
