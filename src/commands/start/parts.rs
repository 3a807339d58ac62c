//! What the listeners of a server share.

use crate::access::Access;
use crate::admin::Admin;
use crate::compute::ComputePool;
use crate::console::Console;
use crate::inference::Inference;
use crate::server::ConnectionTable;
use crate::settings::CloudEventVariables;
use crate::tls::ServerTls;

/// The components that the transports of requests share.
#[derive(Clone)]
pub(super) struct ServerParts {
    pub(super) inference: Inference,
    pub(super) admin: Admin,
    pub(super) compute: ComputePool,
    pub(super) connections: ConnectionTables,
    pub(super) events: CloudEventVariables,
    pub(super) tls: Option<ServerTls>,
    pub(super) access: Option<Access>,
    pub(super) console: Option<Console>,
}

/// The connections of listeners, by the limit that they share.
#[derive(Clone)]
pub(super) struct ConnectionTables {
    /// The connections of clients to the REST and gRPC ports.
    pub(super) requests: ConnectionTable,
    /// The connections of operators to the metrics and admin ports. They have slots of their own, so that operators can connect
    /// when clients take all others.
    pub(super) reserved: ConnectionTable,
}
