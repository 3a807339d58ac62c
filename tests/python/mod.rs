//! Models in Python: worker processes, their faults, pools and environments.

mod custom_repository;
pub(crate) mod environments;
mod example_text;
mod irregular;
mod pools;
mod predictors;
mod scripts;
mod shapes;
mod supervision;
mod worker_faults;
mod workers;
