"""RadGraph: entities and relations in reports, with the archives of weights that its authors publish."""
