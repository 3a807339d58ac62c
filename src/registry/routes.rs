//! The routes that models bring along, of all models that are served.

use std::sync::Arc;

use http::Method;

use super::{ModelState, RegisteredModel, Versions};
use crate::types::CustomRoute;

/// What a path and a method mean to the models.
#[derive(Debug, Clone)]
pub enum CustomMatch {
    /// No model has such a path.
    Nothing,
    /// Models have the path, for other methods: those of the `Allow` header.
    OtherMethods {
        allow: String,
    },
    Found(CustomTarget),
}

/// The route that a call has found.
#[derive(Debug, Clone)]
pub struct CustomTarget {
    pub model: Arc<RegisteredModel>,
    /// Its place among the model's routes.
    pub place: usize,
    /// What stands for the parameters of its path.
    pub parameters: Vec<(String, String)>,
}

impl CustomTarget {
    /// Returns the path as the model declares it, with the names of its parameters.
    pub fn template(&self) -> &str {
        route(&self.model, self.place).map_or("", |route| route.template.as_str())
    }
}

/// The routes in the order in which they are tried: those of default versions first, then by the time of loading.
#[derive(Debug, Clone, Default)]
pub(super) struct Routes(Vec<(Arc<RegisteredModel>, usize)>);

impl Routes {
    pub(super) fn of<'a>(models: impl Iterator<Item = &'a Versions>) -> Self {
        let mut routes: Vec<(bool, Arc<RegisteredModel>, usize)> = Vec::new();
        for versions in models {
            for model in versions.all.values() {
                let other = versions.default.as_ref().is_none_or(|default| !Arc::ptr_eq(default, model));
                routes.extend((0..routes_of(model).len()).map(|place| (other, Arc::clone(model), place)));
            }
        }
        routes.sort_by_key(|(other, model, place)| (*other, model.generation, *place));
        Self(routes.into_iter().map(|(_, model, place)| (model, place)).collect())
    }

    pub(super) fn find(&self, method: &Method, path: &str) -> CustomMatch {
        let mut others: Vec<&str> = Vec::new();
        for (model, place) in &self.0 {
            let Some(route) = route(model, *place) else { continue };
            let Some(parameters) = route.template.matches(path) else { continue };
            if route.method == *method || route.method == Method::GET && *method == Method::HEAD {
                return CustomMatch::Found(CustomTarget { model: Arc::clone(model), place: *place, parameters });
            }
            let more: &[&str] = if route.method == Method::GET { &["GET", "HEAD"] } else { &[route.method.as_str()] };
            others.extend(more.iter().filter(|method| !others.contains(*method)).copied().collect::<Vec<_>>());
        }
        if others.is_empty() { CustomMatch::Nothing } else { CustomMatch::OtherMethods { allow: others.join(",") } }
    }

    /// Finds a model of another name that has the same route.
    pub(super) fn same_of_other(&self, name: &str, wanted: &CustomRoute) -> Option<&RegisteredModel> {
        let same = |model: &RegisteredModel, place| {
            let found = route(model, place);
            found.is_some_and(|route| {
                route.method == wanted.method && route.template.as_str() == wanted.template.as_str()
            })
        };
        let mut others = self.0.iter().filter(|(model, place)| model.name != name && same(model, *place));
        others.next().map(|(model, _)| &**model)
    }
}

pub(super) fn routes_of(model: &RegisteredModel) -> &[CustomRoute] {
    match &model.state {
        ModelState::Ready(runtime) => &runtime.description().routes,
        ModelState::Loading | ModelState::Failed { .. } => &[],
    }
}

fn route(model: &RegisteredModel, place: usize) -> Option<&CustomRoute> {
    routes_of(model).get(place)
}
