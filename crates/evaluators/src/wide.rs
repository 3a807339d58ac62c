//! The widest instructions of the processor.

use pulp::{Arch, Simd, WithSimd};

/// Runs a loop with the widest instructions of the processor. They round like the narrow ones: nothing is fused.
///
/// Everything that is compiled for these instructions has to be inlined, including closures.
#[inline(always)]
#[expect(clippy::inline_always, reason = "code that is not inlined is compiled for the baseline processor")]
pub(crate) fn wide<R>(run: impl FnMut() -> R) -> R {
    Arch::new().dispatch(Wide(run))
}

/// A loop. `pulp` takes closures, too, but calls them as `FnOnce`: for a closure that can run again, that is a function of its
/// own, which is not inlined.
struct Wide<F>(F);

impl<R, F: FnMut() -> R> WithSimd for Wide<F> {
    type Output = R;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn with_simd<S: Simd>(mut self, _: S) -> R {
        (self.0)()
    }
}
