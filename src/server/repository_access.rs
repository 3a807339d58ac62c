//! Which listeners serve the model repository API.

/// Whether a listener serves the model repository API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RepositoryAccess {
    /// Next to everything else.
    #[default]
    Served,
    /// The setting `repository_api` is off.
    Off,
    /// Another listener serves it, on `admin_port`.
    OnAdminPort,
    /// The listener serves nothing else, except health.
    Only,
}

impl RepositoryAccess {
    /// Returns why the repository API is not served here, if it is not.
    pub(super) const fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Served | Self::Only => None,
            Self::Off => Some("the repository API is off (setting `repository_api`)"),
            Self::OnAdminPort => Some("the repository API is only served on the port of the setting `admin_port`"),
        }
    }
}
