//! Steps that answer with their inputs. Those whose names begin with `f` fail.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use mlserver::graphs::{BoxFuture, ConditionWork, FoundCondition, Step, StepOutcome, StepRunner};
use mlserver::types::{ByteReservation, InferenceRequest, InferenceResponse, Priority};

pub struct Echo;

impl StepRunner for Echo {
    type Error = &'static str;

    fn run(
        self: &Arc<Self>,
        step: &Step,
        request: InferenceRequest,
    ) -> BoxFuture<'static, Result<InferenceResponse, &'static str>> {
        let fails = step.name.starts_with('f');
        Box::pin(async move {
            if fails {
                return Err("the step fails");
            }
            let InferenceRequest { inputs: outputs, parameters, .. } = request;
            Ok(InferenceResponse { outputs, parameters, ..InferenceResponse::default() })
        })
    }

    fn observe(&self, _: &Step, _: Duration, _: StepOutcome<'_, &'static str>) {}

    fn random(&self, below: u32) -> u32 {
        below / 2
    }

    fn compute(
        self: &Arc<Self>,
        _: Priority,
        work: ConditionWork,
    ) -> BoxFuture<'static, Result<FoundCondition, &'static str>> {
        Box::pin(async move { Ok(work(ByteReservation::default(), &AtomicBool::new(false))) })
    }
}
