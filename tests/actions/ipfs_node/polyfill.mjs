// Node 20 lacks what the libraries take for granted.
Promise.withResolvers ??= function () {
  let resolve, reject
  const promise = new Promise((yes, no) => { resolve = yes; reject = no })
  return { promise, resolve, reject }
}
