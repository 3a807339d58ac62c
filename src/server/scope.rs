//! The permissions that requests need.

/// The permission that a route or a call needs.
///
/// The tables of routes and calls declare it; access control is not enforced yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// No permission: health and documentation.
    Open,
    /// Reading the metadata of the server and its models.
    Read,
    /// Predictions.
    Infer,
    /// Changing which models are loaded.
    Admin,
    /// Scraping metrics.
    Metrics,
}

impl Scope {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Infer => "infer",
            Self::Admin => "admin",
            Self::Metrics => "metrics",
        }
    }
}
