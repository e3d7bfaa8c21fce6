"""How cria, the small chat model that ships with Camelid, is generated, trained, graded and exported."""
