//! NumPy's functions of one number, by the names that pickles call them.

use crate::pickle::Value;

/// A function of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    /// No function: numbers stay what they are.
    Identity,
    Absolute,
    Cbrt,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log10,
    Log1p,
    Log2,
    Negative,
    Reciprocal,
    Sqrt,
    Square,
}

impl Function {
    /// The function that a value of a pickle is, if it is a known one.
    pub(super) fn named(value: Value<'_>) -> Option<Self> {
        let name = match value.global() {
            Some(path) => path.strip_prefix("numpy.")?,
            // NumPy's functions were pickled as a call that looks their names up.
            None => match (value.class()?, &value.arguments()[..]) {
                ("numpy.core._ufunc_reconstruct", [_, name]) => name.as_str()?,
                _ => return None,
            },
        };
        // Some versions name the module that functions are defined in.
        Some(match name.rsplit('.').next()? {
            "absolute" | "abs" => Self::Absolute,
            "cbrt" => Self::Cbrt,
            "exp" => Self::Exp,
            "exp2" => Self::Exp2,
            "expm1" => Self::Expm1,
            "log" => Self::Log,
            "log10" => Self::Log10,
            "log1p" => Self::Log1p,
            "log2" => Self::Log2,
            "negative" => Self::Negative,
            "reciprocal" => Self::Reciprocal,
            "sqrt" => Self::Sqrt,
            "square" => Self::Square,
            _ => return None,
        })
    }

    /// The function's value.
    pub(super) fn of(self, x: f64) -> f64 {
        match self {
            Self::Identity => x,
            Self::Absolute => x.abs(),
            Self::Cbrt => x.cbrt(),
            Self::Exp => x.exp(),
            Self::Exp2 => x.exp2(),
            Self::Expm1 => x.exp_m1(),
            Self::Log => x.ln(),
            Self::Log10 => x.log10(),
            Self::Log1p => x.ln_1p(),
            Self::Log2 => x.log2(),
            Self::Negative => -x,
            Self::Reciprocal => x.recip(),
            Self::Sqrt => x.sqrt(),
            Self::Square => x * x,
        }
    }
}
