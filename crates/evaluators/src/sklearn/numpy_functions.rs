//! NumPy's functions of one number, by their names in pickles.

use std::fmt;

use crate::pickle::PickleValue;
use crate::table::{Elements, IntType, NumericType};

/// A function of one number.
#[derive(Clone, Copy)]
pub(super) struct NumpyFunction {
    name: &'static str,
    of: fn(f64) -> f64,
    integers: IntegerResult,
}

/// The result type for integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IntegerResult {
    Integers,
    Floats,
    /// A type that is not supported here.
    Unsupported,
}

const fn function(name: &'static str, of: fn(f64) -> f64, integers: IntegerResult) -> NumpyFunction {
    NumpyFunction { name, of, integers }
}

const FUNCTIONS: &[NumpyFunction] = &[
    function("abs", f64::abs, IntegerResult::Integers),
    function("absolute", f64::abs, IntegerResult::Integers),
    function("arcsinh", f64::asinh, IntegerResult::Floats),
    function("arctan", f64::atan, IntegerResult::Floats),
    function("cbrt", f64::cbrt, IntegerResult::Floats),
    function("cos", f64::cos, IntegerResult::Floats),
    function("cosh", f64::cosh, IntegerResult::Floats),
    function("exp", f64::exp, IntegerResult::Floats),
    function("exp2", f64::exp2, IntegerResult::Floats),
    function("expm1", f64::exp_m1, IntegerResult::Floats),
    function("fabs", f64::abs, IntegerResult::Floats),
    function("log", f64::ln, IntegerResult::Floats),
    function("log10", f64::log10, IntegerResult::Floats),
    function("log1p", f64::ln_1p, IntegerResult::Floats),
    function("log2", f64::log2, IntegerResult::Floats),
    function("negative", |x| -x, IntegerResult::Integers),
    function("reciprocal", f64::recip, IntegerResult::Unsupported),
    function("rint", f64::round_ties_even, IntegerResult::Floats),
    function("sign", sign, IntegerResult::Integers),
    function("sin", f64::sin, IntegerResult::Floats),
    function("sinh", f64::sinh, IntegerResult::Floats),
    function("sqrt", f64::sqrt, IntegerResult::Floats),
    function("square", |x| x * x, IntegerResult::Integers),
    function("tan", f64::tan, IntegerResult::Floats),
    function("tanh", f64::tanh, IntegerResult::Floats),
];

fn sign(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() { x + 0.0 } else { x.signum() }
}

impl fmt::Debug for NumpyFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl NumpyFunction {
    /// The identity.
    pub(super) const IDENTITY: Self = function("identity", |x| x, IntegerResult::Integers);

    /// Returns the function that a pickled value refers to, if it is supported.
    pub(super) fn named(value: PickleValue<'_>) -> Option<Self> {
        let name = match value.global() {
            Some(path) => path.strip_prefix("numpy.")?,
            // Ufuncs were pickled as a call that looks up their names.
            None => match (value.class()?, &value.arguments()[..]) {
                ("numpy.core._ufunc_reconstruct", [_, name]) => name.as_str()?,
                _ => return None,
            },
        };
        // Some versions name the module in which functions are defined.
        let name = name.rsplit('.').next()?;
        FUNCTIONS.iter().find(|function| function.name == name).copied()
    }

    /// Applies the function.
    pub(super) fn of(self, x: f64) -> f64 {
        (self.of)(x)
    }

    /// Applies the function. The result has the type that NumPy returns; `None` if the type is not supported.
    pub(super) fn elements(self, values: &Elements<'_>) -> Option<Elements<'static>> {
        let numeric = match (values.numeric()?, self.integers) {
            (NumericType::Int(IntType::Bool), _) | (NumericType::Int(_), IntegerResult::Unsupported) => return None,
            (NumericType::Int(kind), IntegerResult::Integers) => NumericType::Int(kind),
            (NumericType::Int(IntType::I16 | IntType::U16) | NumericType::F32, _) => NumericType::F32,
            // NumPy returns half precision.
            (NumericType::Int(IntType::I8 | IntType::U8), _) => return None,
            _ => NumericType::F64,
        };
        Some(numeric.elements(values.floats()?.iter().map(|&value| self.of(value)).collect()))
    }
}
