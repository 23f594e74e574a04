"""The admin front end: HTTP for people, their tools and their monitoring.

connection     bytes of one client to requests and back; h11 knows the protocol
dispatch       one request: login, CSRF rules, route, handler, problem or response
router         method and path → route
endpoint       one documented call of the JSON API: its parameters, body and result are types
openapi        the document that describes all endpoints
handlers/      the calls, one module for each kind of object
management/    RabbitMQ's management API, as far as its tools use it
"""
