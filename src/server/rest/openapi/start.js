// Shows the document beside the page. The query may name the model's version.
SwaggerUIBundle({
  url: "docs/dataplane.json" + location.search,
  dom_id: "#swagger-ui",
  deepLinking: true,
  // No answer of ours is sent to a validator elsewhere.
  validatorUrl: "none",
});
