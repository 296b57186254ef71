//! Calls the host until it refuses, logs the number of calls, and if configured so continues until it is cut.

use bindings::{Failure, Outcome, Request, pods, types::CallError};

bindings::guest!(reconcile);

fn reconcile(request: Request) -> Result<Outcome, Failure> {
    let mut calls = 0_u64;
    loop {
        let answer = pods::get(&request.key.namespace, &request.key.name);
        if matches!(answer, Err(CallError::OverBudget)) && !request.config.contains("forever") {
            return Err(Failure::Terminal(format!("refused after {calls} calls")));
        }
        calls += 1;
    }
}
