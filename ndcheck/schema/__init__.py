"""JSON Schemas for editors, made from the types and the conditional rules of each dialect."""
