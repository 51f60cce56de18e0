#pragma once
// The program's own runs, in a file of a name that the library has inside, too.
#define OWN_RUN 1
