"""Ground floor: outcomes, rows, tables, readers, lineage, answers, language, duplicates."""
