//! The widest instructions of the processor.

/// Runs a loop with the widest instructions of the processor. They round like the narrow ones: nothing is fused.
///
/// Everything that is compiled for these instructions has to be inlined, including closures.
#[inline(always)]
#[expect(clippy::inline_always, reason = "code that is not inlined is compiled for the baseline processor")]
pub(crate) fn wide<R>(run: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(run)
}
