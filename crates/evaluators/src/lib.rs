//! Evaluators of model files: pure functions from arrays to arrays.
//!
//! An evaluator reads the bytes of an untrusted model file and computes predictions from tables of numbers. It knows
//! nothing about requests, settings or threads; the adapters are in `runtimes`.

pub mod catboost;
pub mod contributions;
mod exp;
pub mod onnx;
mod panels;
pub mod pickle;
pub mod sklearn;
pub mod skops;
pub mod table;
pub mod trees;
mod wide;
