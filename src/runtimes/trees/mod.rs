//! Tree ensembles of `XGBoost` and `LightGBM`, evaluated natively.
