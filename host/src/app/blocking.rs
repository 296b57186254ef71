//! Runs blocking jobs, such as reading the journal, on the runtime's blocking threads. A simulation runs them in the
//! caller, because no result may depend on how long a job takes.

use podium_engine::ports::Blocking;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

pub(super) struct BlockingJobs {
    /// `None` in a simulation.
    runtime: Option<Handle>,
    jobs: TaskTracker,
}

impl BlockingJobs {
    pub(super) fn new(runtime: Option<Handle>) -> Self {
        Self { runtime, jobs: TaskTracker::new() }
    }

    /// Returns when all jobs have ended. The caller should set a deadline, because a job waits for as long as the
    /// disk does not answer.
    pub(super) async fn join(&self) {
        self.jobs.close();
        self.jobs.wait().await;
    }
}

impl Blocking for BlockingJobs {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        match &self.runtime {
            // The tracker waits for the job instead of the handle.
            Some(runtime) => drop(self.jobs.spawn_blocking_on(job, runtime)),
            None => job(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_job_does_not_hold_up_its_caller_and_is_joined() {
        let jobs = BlockingJobs::new(Some(Handle::current()));
        let (go, wait) = mpsc::channel::<()>();
        let (done, ended) = mpsc::channel();
        jobs.run(Box::new(move || {
            wait.recv().unwrap();
            done.send(()).unwrap();
        }));
        let mut joining = Box::pin(jobs.join());
        assert!(futures::FutureExt::now_or_never(joining.as_mut()).is_none());
        go.send(()).unwrap();
        joining.await;
        ended.try_recv().unwrap();
    }

    #[test]
    fn a_job_of_a_simulation_has_ended_when_it_was_started() {
        let (done, ended) = mpsc::channel();
        BlockingJobs::new(None).run(Box::new(move || done.send(()).unwrap()));
        ended.try_recv().unwrap();
    }
}
