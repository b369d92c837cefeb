// Reads {schema, configs} and prints, for each config, its errors as [index of the clause, path of the key].
const Ajv = {
  "http://json-schema.org/draft-07/schema#": require("ajv").default,
  "https://json-schema.org/draft/2019-09/schema": require("ajv/dist/2019").default,
  "https://json-schema.org/draft/2020-12/schema": require("ajv/dist/2020").default,
};
const { schema, configs } = JSON.parse(require("fs").readFileSync(0, "utf8"));
// strictRequired is about style: that a key is written is often all that a condition asks
const ajv = new Ajv[schema.$schema]({ strict: true, allowUnionTypes: true, strictRequired: false, allErrors: true });
ajv.addVocabulary(["errorMessage", "deprecationMessage", "markdownDescription", "defaultSnippets", "doNotSuggest"]);
const validate = ajv.compile(schema);
const found = configs.map((config) => {
  validate(config);
  return (validate.errors || [])
    .filter((error) => error.keyword !== "if")
    .map((error) => [error.schemaPath, error.instancePath]);
});
process.stdout.write(JSON.stringify(found));
