//! Evaluators of model files: pure functions from arrays to arrays.
//!
//! An evaluator reads the bytes of an untrusted model file and computes predictions from tables of numbers. It knows
//! nothing about requests, settings or threads; `runtimes` has the adapters.

pub mod sklearn;
pub mod trees;
