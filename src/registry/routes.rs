//! The models' own routes, of all models that are served.

use std::sync::Arc;

use http::Method;

use super::snapshot::ModelVersions;
use super::{ModelState, RegisteredModel};
use crate::types::CustomRoute;

/// The result of looking up a path and a method.
#[derive(Debug, Clone)]
pub enum CustomMatch {
    /// No model has the path.
    NoRoute,
    /// Models have the path for other methods, which are those of the `Allow` header.
    OtherMethods {
        allow: String,
    },
    Found(CustomTarget),
}

/// The route that matches a call.
#[derive(Debug, Clone)]
pub struct CustomTarget {
    pub model: Arc<RegisteredModel>,
    /// The index of the route in the model's description.
    pub index: usize,
    /// The values of the path's parameters.
    pub parameters: Vec<(String, String)>,
}

impl CustomTarget {
    /// Returns the path as declared, with the names of its parameters.
    pub fn template(&self) -> &str {
        route(&self.model, self.index).map_or("", |route| route.template.as_str())
    }
}

/// The routes in the order in which they are matched: those of default versions first, then those of models that ask other models,
/// which may have the same routes, then by the time of loading.
#[derive(Debug, Clone, Default)]
pub(super) struct CustomRoutes(Vec<(Arc<RegisteredModel>, usize)>);

impl CustomRoutes {
    pub(super) fn of<'a>(models: impl Iterator<Item = &'a ModelVersions>) -> Self {
        let mut routes: Vec<(bool, Arc<RegisteredModel>, usize)> = Vec::new();
        for versions in models {
            for model in versions.all.values() {
                let other = versions.default.as_ref().is_none_or(|default| !Arc::ptr_eq(default, model));
                routes.extend((0..routes_of(model).len()).map(|index| (other, Arc::clone(model), index)));
            }
        }
        routes.sort_by_key(|(other, model, index)| (*other, model.steps().is_empty(), model.generation, *index));
        Self(routes.into_iter().map(|(_, model, index)| (model, index)).collect())
    }

    pub(super) fn find(&self, method: &Method, path: &str) -> CustomMatch {
        let mut others: Vec<&str> = Vec::new();
        for (model, index) in &self.0 {
            let Some(route) = route(model, *index) else { continue };
            let Some(parameters) = route.template.matches(path) else { continue };
            if route.method == *method || route.method == Method::GET && *method == Method::HEAD {
                return CustomMatch::Found(CustomTarget { model: Arc::clone(model), index: *index, parameters });
            }
            let more: &[&str] = if route.method == Method::GET { &["GET", "HEAD"] } else { &[route.method.as_str()] };
            others.extend(more.iter().filter(|method| !others.contains(*method)).copied().collect::<Vec<_>>());
        }
        if others.is_empty() { CustomMatch::NoRoute } else { CustomMatch::OtherMethods { allow: others.join(",") } }
    }

    /// Finds a model of another name with the same route.
    pub(super) fn find_duplicate(&self, name: &str, wanted: &CustomRoute) -> Option<&RegisteredModel> {
        let same = |model: &RegisteredModel, index| {
            let found = route(model, index);
            found.is_some_and(|route| {
                route.method == wanted.method && route.template.as_str() == wanted.template.as_str()
            })
        };
        let mut others = self.0.iter().filter(|(model, index)| model.name != name && same(model, *index));
        others.next().map(|(model, _)| &**model)
    }
}

pub(super) fn routes_of(model: &RegisteredModel) -> &[CustomRoute] {
    match &model.state {
        ModelState::Ready(runtime) => &runtime.description().routes,
        ModelState::Loading | ModelState::Failed { .. } => &[],
    }
}

fn route(model: &RegisteredModel, index: usize) -> Option<&CustomRoute> {
    routes_of(model).get(index)
}
