// The library is its layers (meson.build beside this); a target has to have a source of its own.
