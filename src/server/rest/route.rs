//! A row of the table of routes, as each module declares its own.

use super::Handler;
use super::errors::ErrorFormat;
use crate::access::Scope;

/// A row of the table.
#[derive(Debug)]
pub(super) struct RouteSpec {
    pub(super) methods: RouteMethods,
    /// The path, with variable segments in braces. It is also the label of metrics.
    pub(super) template: &'static str,
    pub(super) handler: Handler,
    pub(super) scope: Scope,
    pub(super) subject: RouteSubject,
    /// Whether metrics and the access log cover the route. Health routes are not covered, as in the original.
    pub(super) observed: bool,
    /// Whether a model's own route may take the path. If not, such a model is not loaded.
    pub(super) shadowable: bool,
    /// The form of its errors.
    pub(super) errors: ErrorFormat,
}

/// What a route is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteSubject {
    /// A model, or several.
    Model,
    /// The only graph of the server.
    Graph,
    /// The repository of models.
    Repository,
    /// The health of the server.
    Server,
}

/// The methods of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteMethods {
    /// `GET` and `HEAD`.
    Get,
    Post,
}

impl RouteSpec {
    /// Declares a row that metrics cover and that no model may shadow.
    const fn new(methods: RouteMethods, template: &'static str, scope: Scope, handler: Handler) -> Self {
        Self {
            methods,
            template,
            handler,
            scope,
            subject: RouteSubject::Model,
            observed: true,
            shadowable: false,
            errors: ErrorFormat::V2,
        }
    }

    pub(super) const fn get(template: &'static str, scope: Scope, handler: Handler) -> Self {
        Self::new(RouteMethods::Get, template, scope, handler)
    }

    pub(super) const fn post(template: &'static str, scope: Scope, handler: Handler) -> Self {
        Self::new(RouteMethods::Post, template, scope, handler)
    }

    /// Declares a health check.
    pub(super) const fn check(template: &'static str, handler: Handler) -> Self {
        Self { observed: false, ..Self::get(template, Scope::Open, handler) }
    }

    /// Leaves the route out of metrics and the access log.
    pub(super) const fn unobserved(self) -> Self {
        Self { observed: false, ..self }
    }

    pub(super) const fn about(self, subject: RouteSubject) -> Self {
        Self { subject, ..self }
    }

    /// Declares a row of OpenAI's API, which a model may serve instead.
    pub(super) const fn openai(self) -> Self {
        Self { errors: ErrorFormat::OpenAi, ..self.shadowable() }
    }

    pub(super) const fn shadowable(self) -> Self {
        Self { shadowable: true, ..self }
    }
}
