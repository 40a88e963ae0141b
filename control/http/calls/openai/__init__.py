"""`/openai`: endpoints behind the official OpenAI clients, as calls. `control.http.openai` has the shapes."""
