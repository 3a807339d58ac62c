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
        let (module, name) = match value.global() {
            Some(path) => path.rsplit_once('.')?,
            // Ufuncs were pickled as a call that looks up their names.
            None => match (value.class()?, &value.arguments()[..]) {
                ("numpy.core._ufunc_reconstruct", [module, name]) => (module.as_str()?, name.as_str()?),
                _ => return None,
            },
        };
        // Some versions name the module in which functions are defined. Other modules have functions of the same names: those of
        // `numpy.lib.scimath` return complex numbers.
        let is_numpy = ["numpy", "numpy.core", "numpy._core"].contains(&module)
            || ["numpy.core.", "numpy._core."].iter().any(|parent| module.starts_with(parent));
        if !is_numpy {
            return None;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pickle;

    fn named(pickle: &str) -> Option<&'static str> {
        let pickle = pickle::read(pickle.as_bytes().to_vec().into()).unwrap();
        NumpyFunction::named(pickle.root()).map(|function| function.name)
    }

    #[test]
    fn functions_of_other_modules_are_unknown() {
        for module in ["numpy", "numpy.core._multiarray_umath", "numpy._core._multiarray_umath", "numpy.core.umath"] {
            assert_eq!(named(&format!("c{module}\nlog\n.")), Some("log"), "{module}");
            assert_eq!(named(&format!("cnumpy.core\n_ufunc_reconstruct\n(V{module}\nVlog\ntR.")), Some("log"));
        }
        for module in
            ["numpy.lib.scimath", "numpy.ma.core", "numpy.corelog", "scipy.special._ufuncs", "math", "__main__"]
        {
            assert_eq!(named(&format!("c{module}\nlog\n.")), None, "{module}");
            assert_eq!(named(&format!("cnumpy.core\n_ufunc_reconstruct\n(V{module}\nVlog\ntR.")), None, "{module}");
        }
    }
}
