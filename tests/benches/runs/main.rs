//! The cost of a run: `just bench-runs [--repeats N] [--millis N] [NAME..]`. docs/benchmarks.md describes the table.
//!
//! Every case runs for some hundred milliseconds on one thread and then on two, and the cases take turns, so that a
//! busy machine disturbs all of them alike. The request and the Pods are made beforehand. The cases of `floor` are
//! wasmtime without Podium.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a bench fails")]

mod cases;
mod floor;

use std::{
    sync::Barrier,
    time::{Duration, Instant},
};

use podium_tests::sandbox::thread_time;
use tokio::runtime::Runtime;

/// Page faults of this thread that needed no disk.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // Behind the name, which may have spaces: state is the first field, minflt the eighth.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(7).unwrap().parse().unwrap()
}

/// Something that is run again and again, on several threads at once.
struct Case {
    name: String,
    /// Work of one kind in each run, such as host calls.
    parts: u32,
    run: Box<dyn Fn(&Runtime) + Sync>,
}

/// One measurement.
#[derive(Clone, Copy)]
struct Sample {
    /// Processor time per run.
    cpu_micros: f64,
    /// Elapsed time per run of one thread.
    wall_micros: f64,
    /// Runs of all threads together.
    per_second: f64,
    /// Page faults per run that needed no disk.
    faults: f64,
}

struct Arguments {
    repeats: usize,
    time: Duration,
    names: Vec<String>,
}

fn arguments() -> Arguments {
    let mut arguments = Arguments { repeats: 5, time: Duration::from_millis(300), names: Vec::new() };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        let mut number = || given.next().and_then(|text| text.parse().ok()).expect("a number follows");
        match argument.as_str() {
            "--repeats" => arguments.repeats = number(),
            "--millis" => arguments.time = Duration::from_millis(number() as u64),
            // Cargo passes it to every bench.
            "--bench" => {}
            name => arguments.names.push(name.to_owned()),
        }
    }
    arguments
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

fn measure(case: &Case, threads: usize, time: Duration) -> Sample {
    let all = Barrier::new(threads);
    let measured: Vec<(u64, u64, Duration, Duration)> = std::thread::scope(|scope| {
        #[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
        let one = || {
            let runtime = runtime();
            (case.run)(&runtime);
            all.wait();
            let (faulted, started, before) = (faults(), Instant::now(), thread_time());
            let mut runs = 0;
            while started.elapsed() < time {
                (0..8).for_each(|_| (case.run)(&runtime));
                runs += 8;
            }
            let (cpu, wall) = (thread_time() - before, started.elapsed());
            (runs, faults() - faulted, cpu, wall)
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let runs: u64 = measured.iter().map(|(runs, ..)| runs).sum();
    let faults: u64 = measured.iter().map(|(_, faults, ..)| faults).sum();
    let cpu: Duration = measured.iter().map(|(.., cpu, _)| *cpu).sum();
    let wall: Duration = measured.iter().map(|(.., wall)| *wall).sum();
    let per_second = measured.iter().map(|(runs, .., wall)| *runs as f64 / wall.as_secs_f64()).sum();
    Sample {
        cpu_micros: cpu.as_secs_f64() * 1e6 / runs as f64,
        wall_micros: wall.as_secs_f64() * 1e6 / runs as f64,
        per_second,
        faults: faults as f64 / runs as f64,
    }
}

/// Median, smallest and largest of one figure.
fn spread(samples: &[Sample], figure: impl Fn(&Sample) -> f64, digits: usize) -> String {
    let mut values: Vec<f64> = samples.iter().map(figure).collect();
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    format!("{:.digits$} ({least:.digits$}-{most:.digits$})", values[values.len() / 2])
}

fn main() {
    let Arguments { repeats, time, names } = arguments();
    let chosen = |case: &Case| names.is_empty() || names.iter().any(|name| case.name.contains(name.as_str()));
    let cases: Vec<Case> = cases::all().into_iter().chain(floor::all()).filter(chosen).collect();
    let mut samples: Vec<[Vec<Sample>; 2]> = cases.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    for _ in 0..repeats {
        for (case, samples) in cases.iter().zip(&mut samples) {
            for (threads, samples) in [1, 2].into_iter().zip(samples) {
                samples.push(measure(case, threads, time));
            }
        }
    }
    println!("| case | CPU us | wall us | CPU us of a part | page faults | runs/s, 1 thread | runs/s, 2 threads |");
    println!("|---|---|---|---|---|---|---|");
    for (case, [one, two]) in cases.iter().zip(&samples) {
        let parts = f64::from(case.parts);
        println!(
            "| {} | {} | {} | {} | {} | {} | {} |",
            case.name,
            spread(one, |sample| sample.cpu_micros, 2),
            spread(one, |sample| sample.wall_micros, 2),
            if case.parts > 1 { spread(one, |sample| sample.cpu_micros / parts, 3) } else { "-".to_owned() },
            spread(one, |sample| sample.faults, 1),
            spread(one, |sample| sample.per_second, 0),
            spread(two, |sample| sample.per_second, 0),
        );
    }
}
