//! The images that other images start from: the server alone, with Python, and with Python and the frameworks.

use std::collections::HashMap;
use std::path::PathBuf;

use super::Dockerfile;

/// An image without models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseImage {
    /// Only the server. Dockerfiles copy it from here.
    Slim,
    /// The server and Python.
    Python,
    /// The server, Python and the frameworks.
    Full,
}

/// The stage of `packaging/docker/slim.Dockerfile` that takes the executable from the context, instead of compiling it.
const GIVEN_STAGE: &str = "given";
/// The Python of the images, unless another base is chosen.
const PYTHON_BASE: &str = "python:3.12-slim";

impl BaseImage {
    /// Returns the image's name in a repository: the version of this executable is its tag.
    pub fn tag(self, repository: &str) -> String {
        let version = env!("CARGO_PKG_VERSION");
        match self {
            Self::Slim => format!("{repository}:{version}-slim"),
            Self::Python => format!("{repository}:{version}-python"),
            Self::Full => format!("{repository}:{version}"),
        }
    }

    /// Returns the image's Dockerfile. `base` is the image with Python, if not the default.
    pub fn dockerfile(self, base: Option<&str>) -> Dockerfile {
        match self {
            Self::Slim => Dockerfile {
                text: include_str!("../../packaging/docker/slim.Dockerfile").to_owned(),
                images: Vec::new(),
            },
            Self::Python | Self::Full => Dockerfile {
                text: include_str!("../../packaging/docker/all.Dockerfile").to_owned(),
                images: vec![base.unwrap_or(PYTHON_BASE).to_owned()],
            },
        }
    }

    /// Returns the values of the Dockerfile's `ARG`s. Images with Python take the server from the slim one in the same repository.
    pub fn arguments(self, repository: &str, base: Option<&str>) -> HashMap<String, String> {
        let values = match self {
            Self::Slim => vec![("SOURCE", GIVEN_STAGE.to_owned())],
            Self::Python | Self::Full => {
                vec![("SERVER", Self::Slim.tag(repository)), ("BASE", base.unwrap_or(PYTHON_BASE).to_owned())]
            }
        };
        values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Returns the files of the context besides the server. `requirements` replaces the packages of the full image.
    pub fn files(self, requirements: Option<Vec<u8>>) -> Vec<(PathBuf, Vec<u8>)> {
        let packages = match self {
            Self::Slim => return Vec::new(),
            Self::Python => Vec::new(),
            Self::Full => {
                requirements.unwrap_or_else(|| include_bytes!("../../packaging/docker/requirements.txt").to_vec())
            }
        };
        vec![("packaging/docker/requirements.txt".into(), packages)]
    }

    /// Reports whether the context needs the server's files.
    pub const fn needs_server(self) -> bool {
        matches!(self, Self::Slim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_image_defaults_of_the_dockerfiles_are_those_of_the_command() {
        let slim = BaseImage::Slim.dockerfile(None).text;
        assert!(slim.contains(&format!("FROM scratch AS {GIVEN_STAGE}\n")), "{slim}");
        let full = BaseImage::Full.dockerfile(None).text;
        for line in [format!("ARG SERVER={}", BaseImage::Slim.tag("mlserver")), format!("ARG BASE={PYTHON_BASE}")] {
            assert!(full.lines().any(|found| found == line), "{line}");
        }
    }
}
