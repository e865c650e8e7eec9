"""Members of a federation on their own hosts: invitation, registration request, approval and leaving."""
