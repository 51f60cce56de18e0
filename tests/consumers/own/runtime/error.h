#pragma once
// The program's own errors, in a file of a name that the library has inside, too.
#define OWN_ERROR 1
