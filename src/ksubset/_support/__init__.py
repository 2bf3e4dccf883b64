"""Files, extras, digests, provenance, tables and colours: private, and without knowledge of the rest of the package."""
