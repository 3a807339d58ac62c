//! Objectives, which map sums to predictions.

use crate::trees::error::{LoadError, quote};

/// The function that maps the sum over all trees to a prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Link {
    Identity,
    /// The square, with the sign of the sum.
    SignedSquare,
    Exp,
    Sigmoid {
        steepness: f64,
    },
    Softmax,
    /// `ln(1 + exp(x))`
    Softplus {
        /// Whether the precision of small values is kept, which `1 + exp(x)` would round to one.
        precise: bool,
    },
}

impl Link {
    /// Parses the `objective` line of a model with `outputs` outputs. A custom objective has no line.
    ///
    /// `old` is set for files from before 3.2.
    pub(super) fn parse(line: Option<&str>, outputs: usize, old: bool) -> Result<Self, LoadError> {
        let Some(line) = line else { return Ok(Self::Identity) };
        let mut words = line.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        let options: Vec<&str> = words.collect();
        let option = |key: &str| options.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix(':'));
        let wrong = |wanted: &'static str| LoadError::Field { field: "objective", wanted, found: quote(line) };
        let steepness = || match option("sigmoid") {
            Some(text) => {
                let steepness = text.parse::<f64>().ok().filter(|value| *value > 0.0);
                steepness.ok_or_else(|| wrong("a positive number as `sigmoid`"))
            }
            None => Err(wrong("a number as `sigmoid`")),
        };
        if matches!(name, "multiclass" | "multiclassova") {
            let classes = option("num_class").and_then(|text| text.parse().ok());
            if classes != Some(outputs) {
                return Err(wrong("one class for each tree of an iteration"));
            }
        }
        Ok(match name {
            "regression" | "regression_l1" | "huber" | "fair" | "quantile" | "mape" => {
                if options.contains(&"sqrt") {
                    Self::SignedSquare
                } else {
                    Self::Identity
                }
            }
            "lambdarank" | "rank_xendcg" => Self::Identity,
            "binary" | "multiclassova" => Self::Sigmoid { steepness: steepness()? },
            "multiclass" => Self::Softmax,
            "cross_entropy" | "xentropy" => Self::Sigmoid { steepness: 1.0 },
            "cross_entropy_lambda" | "xentlambda" => Self::Softplus { precise: !old },
            "poisson" | "gamma" | "tweedie" => Self::Exp,
            _ => return Err(LoadError::Unsupported { what: "objective", name: quote(line) }),
        })
    }

    /// Transforms sums in place, `outputs` to a row.
    pub(super) fn apply(self, sums: &mut [f64], outputs: usize) {
        let each = |sums: &mut [f64], transform: &dyn Fn(f64) -> f64| {
            for sum in sums {
                *sum = transform(*sum);
            }
        };
        match self {
            Self::Identity => {}
            Self::SignedSquare => each(sums, &|sum| sum * sum.abs()),
            Self::Exp => each(sums, &f64::exp),
            Self::Sigmoid { steepness } => each(sums, &|sum| 1.0 / (1.0 + (-steepness * sum).exp())),
            Self::Softplus { precise: true } => each(sums, &|sum| sum.exp().ln_1p()),
            #[expect(clippy::imprecise_flops, reason = "reproduces the rounding of the old library")]
            Self::Softplus { precise: false } => each(sums, &|sum| (1.0 + sum.exp()).ln()),
            Self::Softmax => sums.chunks_exact_mut(outputs).for_each(softmax),
        }
    }
}

/// Replaces sums by probabilities.
fn softmax(sums: &mut [f64]) {
    let largest = sums.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut total = 0.0;
    for sum in &mut *sums {
        *sum = (*sum - largest).exp();
        total += *sum;
    }
    for sum in sums {
        *sum /= total;
    }
}

#[cfg(test)]
mod tests {
    use super::Link;

    #[test]
    fn objective_lines_are_parsed_or_rejected() {
        let link = |line| Link::parse(Some(line), 3, false).map_err(|error| error.to_string());
        assert_eq!(Link::parse(None, 1, false).unwrap(), Link::Identity);
        assert_eq!(link("regression"), Ok(Link::Identity));
        assert_eq!(link("regression sqrt"), Ok(Link::SignedSquare));
        assert_eq!(link("quantile"), Ok(Link::Identity));
        assert_eq!(link("binary sigmoid:0.7"), Ok(Link::Sigmoid { steepness: 0.7 }));
        assert_eq!(link("multiclassova num_class:3 sigmoid:2"), Ok(Link::Sigmoid { steepness: 2.0 }));
        assert_eq!(link("multiclass num_class:3"), Ok(Link::Softmax));
        assert_eq!(link("tweedie"), Ok(Link::Exp));
        assert_eq!(link("cross_entropy_lambda"), Ok(Link::Softplus { precise: true }));
        assert_eq!(link("loss9"), Err("objective `loss9` is not supported".to_owned()));
        let classes = "field `objective`: expected one class for each tree of an iteration, \
                       found `multiclass num_class:4`";
        assert_eq!(link("multiclass num_class:4"), Err(classes.to_owned()));
    }
}
