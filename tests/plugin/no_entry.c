/* A shared library that is no plugin. */
__attribute__((visibility("default"))) int some_other_function(void);
int some_other_function(void) { return 7; }
