//! The permissions that requests need.

use serde::{Deserialize, Serialize};

/// The permission that a route or a call needs. None implies another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// No permission: health. Keys cannot have it.
    #[serde(skip)]
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
    /// Every scope that a principal may have.
    pub const ALL: [Self; 4] = [Self::Infer, Self::Read, Self::Admin, Self::Metrics];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Infer => "infer",
            Self::Admin => "admin",
            Self::Metrics => "metrics",
        }
    }

    /// Finds a scope by its name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

/// The scopes of a principal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScopeSet(u8);

impl ScopeSet {
    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }
}

impl FromIterator<Scope> for ScopeSet {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |set, scope| set | 1 << scope as u8))
    }
}
